-- _check_items: refuses arrays that do not describe one item per place.
--
-- Locks:  none.
-- Raises: 22023 for null arrays, null ids or tokens, several dimensions, unequal lengths.
create or replace function _check_items(
  job_ids bigint[],
  tokens bigint[],
  others integer[] default '{}'
)
returns void
language plpgsql
immutable
set search_path from current
as $$
declare
  n constant integer := cardinality(job_ids);
begin
  if job_ids is null or tokens is null then
    raise exception 'job_ids and tokens must not be null' using errcode = '22023';
  end if;
  if array_ndims(job_ids) > 1 or array_ndims(tokens) > 1
    or cardinality(tokens) <> n or n <> any (others)
  then
    raise exception 'arrays must have one element per job'
      using errcode = '22023',
        detail = format('%s job_ids, %s tokens', n, cardinality(tokens));
  end if;
  if array_position(job_ids, null) > 0 or array_position(tokens, null) > 0 then
    raise exception 'job_ids and tokens must not hold nulls' using errcode = '22023';
  end if;
end
$$;

comment on function _check_items is
  'Refuses item arrays with nulls or of unequal length (22023); `others` are lengths of further '
  'arrays. Private.';
