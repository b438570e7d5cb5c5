-- _check_items: refuses arrays that do not describe one item per place.
--
-- Locks:  none.
-- Raises: 22023 for null arrays, null ids or tokens, several dimensions, unequal lengths, and
--         arrays that do not count from 1: the places of an item would not agree.
create or replace function _check_items(
  job_ids bigint[],
  tokens bigint[],
  others text[] default '{}'
)
returns void
language plpgsql
immutable
set search_path from current
as $$
declare
  expected constant text := format('[1:%s]', nullif(cardinality(job_ids), 0));
begin
  if job_ids is null or tokens is null then
    raise exception 'job_ids and tokens must not be null' using errcode = '22023';
  end if;
  if _dims(job_ids) <> expected or _dims(tokens) <> expected or expected <> any (others)
  then
    raise exception 'arrays must have one element per job, counted from 1'
      using errcode = '22023',
        detail = format('job_ids%s, tokens%s', array_dims(job_ids), array_dims(tokens)),
        hint = 'A slice such as tokens[:] counts from 1.';
  end if;
  if array_position(job_ids, null) > 0 or array_position(tokens, null) > 0 then
    raise exception 'job_ids and tokens must not hold nulls' using errcode = '22023';
  end if;
end
$$;

comment on function _check_items is
  'Refuses item arrays with nulls, of unequal length or not counted from 1 (22023); `others` are '
  'the _dims of further arrays, null for those not given. Private.';
