-- After any upgrade or downgrade: the transaction may be an application's and go on.
do $$
begin
  perform set_config('search_path', current_setting('pgq_install.search_path'), true);
  perform set_config('lock_timeout', current_setting('pgq_install.lock_timeout'), true);
end $$;
