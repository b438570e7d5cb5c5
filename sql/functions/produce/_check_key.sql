-- _check_key: refuses a dedup key or mode that cannot be.
--
-- Locks:  none.
-- Raises: 22023.
create or replace function _check_key(
  dedup_key text,
  dedup_mode text,
  item bigint default null
)
returns void
language plpgsql
immutable
set search_path from current
as $$
begin
  if not octet_length(dedup_key) between 1 and 1000 then
    raise exception 'dedup_key must have 1 to 1000 bytes'
      using errcode = '22023',
        detail = concat_ws(
          ': ', 'item ' || item, format('%s bytes', octet_length(dedup_key))),
        hint = 'For a longer one use its hash.';
  end if;
  if dedup_mode not in ('ignore', 'replace') then
    raise exception 'unknown dedup_mode'
      using errcode = '22023',
        detail = format('dedup_mode = "%s"', left(dedup_mode, 200)),
        hint = 'It is ignore or replace.';
  end if;
  if dedup_mode is not null and dedup_key is null then
    raise exception 'dedup_mode needs a dedup_key' using errcode = '22023';
  end if;
end
$$;

comment on function _check_key is
  'Refuses an impossible dedup_key or dedup_mode (22023), naming the item of a batch; null means '
  'not given. Private.';
