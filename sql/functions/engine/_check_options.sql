-- _check_options: refuses keys of an options object that nobody would read.
--
-- Locks:  none.
-- Raises: 22023 if it is not a JSON object; JQ005 for an unknown key.
-- Notes:  `options` is where functions grow without a second signature. No option exists yet, so
--         every key is unknown.
create or replace function _check_options(options jsonb)
returns void
language plpgsql
immutable
set search_path from current
as $$
declare
  key text;
begin
  if options is null or options = '{}' then
    return;
  end if;
  if jsonb_typeof(options) <> 'object' then
    raise exception 'options must be a JSON object' using errcode = '22023';
  end if;
  select k into key from jsonb_object_keys(options) k limit 1;
  if found then
    raise exception 'unknown option'
      using errcode = 'JQ005',
        detail = format('option "%s"', left(key, 200)),
        hint = 'Check its spelling and the version of the schema.';
  end if;
end
$$;

comment on function _check_options is
  'Refuses an options object with unknown keys (JQ005). Private.';
