-- Before any upgrade or downgrade, whichever way it is run. The caller has opened a transaction
-- and said in it: set local pgq_install.schema = '<name>'. All settings made here end with it.
do $$
declare
  target constant text := coalesce(current_setting('pgq_install.schema', true), '');
  owner text;
  strangers text;
  release text;
begin
  if target = '' then
    raise exception 'no schema to install into'
      using errcode = 'no_active_sql_transaction',
        hint = 'Run the whole upgrade in one transaction, with a schema name that is not empty.';
  end if;
  if octet_length(target) > 63 then
    raise exception 'schema name "%" is longer than 63 bytes', target
      using errcode = 'name_too_long', hint = 'Choose a shorter one.';
  end if;
  if current_setting('server_version_num')::integer < 150000 then
    raise exception 'PostgreSQL 15 or newer is needed, this server is %',
      current_setting('server_version')
      using errcode = 'feature_not_supported', hint = 'Upgrade the server.';
  end if;

  -- One upgrade of a schema at a time: before the schema is looked for, so that all but the first
  -- find it. Somebody's own lock_timeout is respected; without one nobody waits for ever.
  perform set_config('pgq_install.lock_timeout', current_setting('lock_timeout'), true);
  if current_setting('lock_timeout') = '0' then
    perform set_config('lock_timeout', '1min', true);
  end if;
  begin
    perform pg_advisory_xact_lock(hashtextextended('pgq_sql install ' || target, 0));
  exception when lock_not_available then
    raise exception 'another upgrade of schema % is still running', quote_ident(target)
      using errcode = 'lock_not_available',
        hint = 'Run this again when it has ended; lock_timeout says how long to wait.';
  end;

  select pg_get_userbyid(nspowner) into owner from pg_namespace where nspname = target;
  if owner is null then
    begin
      execute format('create schema %I', target);
    exception when insufficient_privilege then
      raise exception 'role % may not create a schema in database %',
        quote_ident(current_user), quote_ident(current_database())
        using errcode = 'insufficient_privilege',
          hint = format('Ask the owner of the database for: create schema %I authorization %I;',
            target, current_user);
    end;
  elsif owner <> current_user then
    raise exception 'schema % belongs to %, not to %',
      quote_ident(target), quote_ident(owner), quote_ident(current_user)
      using errcode = 'insufficient_privilege',
        hint = format('Choose another schema name, or connect as %I.', owner);
  end if;

  -- The functions run with their owner's rights and find what they use in this schema: whoever
  -- could add something to it could do all that the owner can.
  select string_agg(
    case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end, ', ')
  into strangers
  from pg_namespace, aclexplode(nspacl)
  where nspname = target and privilege_type = 'CREATE' and grantee <> nspowner;
  if strangers is not null then
    raise exception 'others may create objects in schema %: %', quote_ident(target), strangers
      using errcode = 'insufficient_privilege',
        hint = format('Choose another schema name, or: revoke create on schema %I from %s;',
          target, strangers);
  end if;

  if obj_description((select oid from pg_namespace where nspname = target), 'pg_namespace') is null
  then
    execute format('comment on schema %I is %L', target,
      'The job queue pgq_sql: its functions and views are the interface, its tables are private.');
  end if;

  -- The releases name no schema.
  perform set_config('pgq_install.search_path', current_setting('search_path'), true);
  perform set_config('search_path', format('%I, pg_temp', target), true);

  -- Alembic's own table says which release is there, however it came.
  if to_regclass(format('%I.alembic_version', target)) is not null then
    execute format('select string_agg(version_num, '', '' order by version_num)
      from %I.alembic_version', target) into release;
  end if;
  perform set_config('pgq_install.release', coalesce(release, 'base'), true);
end $$;
