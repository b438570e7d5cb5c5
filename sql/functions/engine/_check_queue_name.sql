-- _check_queue_name: refuses a name that no queue may have.
--
-- Locks:  none.
-- Raises: 22023.
create or replace function _check_queue_name(queue text)
returns void
language plpgsql
immutable
set search_path from current
as $$
begin
  if queue is null then
    raise exception 'queue must not be null' using errcode = '22023';
  end if;
  if queue collate "C" !~ '^[A-Za-z0-9_.:/-]{1,100}$' then
    raise exception 'queue name is not valid'
      using errcode = '22023',
        detail = format('queue "%s"', left(queue, 200)),
        hint = 'A name has 1 to 100 bytes: ASCII letters, digits and _ - . : /';
  end if;
  if starts_with(queue collate "C", 'pgq.') then
    raise exception 'queue name is reserved'
      using errcode = '22023',
        detail = format('queue "%s"', queue),
        hint = 'Names beginning with pgq. are kept for the system.';
  end if;
end
$$;

comment on function _check_queue_name is
  'Refuses an invalid or reserved queue name (22023). Private.';
