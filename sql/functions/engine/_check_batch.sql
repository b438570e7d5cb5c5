-- _check_batch: refuses arrays that do not describe one item per place.
--
-- Locks:  none.
-- Raises: 22023 for null payloads, several dimensions, unequal lengths, and arrays that do not
--         count from 1: the places of an item would not agree.
create or replace function _check_batch(payloads jsonb[], others text[])
returns void
language plpgsql
immutable
set search_path from current
as $$
declare
  expected constant text := format('[1:%s]', nullif(cardinality(payloads), 0));
begin
  if payloads is null then
    raise exception 'payloads must not be null' using errcode = '22023';
  end if;
  if _dims(payloads) <> expected or expected <> any (others) then
    raise exception 'arrays must have one element per payload, counted from 1'
      using errcode = '22023',
        detail = format('payloads%s', array_dims(payloads)),
        hint = 'A slice such as delays[:] counts from 1.';
  end if;
end
$$;

comment on function _check_batch is
  'Refuses payloads that are null or not counted from 1 and arrays of other lengths (22023); '
  '`others` are their _dims, null for those not given. Private.';
