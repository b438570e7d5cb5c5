-- After a downgrade to base: the ledger and the schema go too, unless others' objects are in it.
do $$
declare
  target constant text := current_setting('pgq_install.schema');
begin
  if to_regclass(format('%I.alembic_version', target)) is not null then
    execute format('drop table %I.alembic_version', target);
  end if;
  begin
    execute format('drop schema %I', target);
  exception when dependent_objects_still_exist then
    raise notice 'schema % stays: it holds objects that are not the queue''s', quote_ident(target);
  end;
end $$;
