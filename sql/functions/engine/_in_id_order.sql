-- _in_id_order: sorts a batch by job id, so that rows are locked in id order and an item's place is
-- found by binary search.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  A batch is settled by `where id = any (ids)`, which can only be a probe of the primary
--         key; a join with unnest(ids, tokens) may turn into a scan of the table, and once ran at
--         98 instead of 900 calls a second. The item's other values are then found with
--         width_bucket(id, ids), a binary search in C, and `places`.
create or replace function _in_id_order(
  job_ids bigint[],
  out ids bigint[],
  out places integer[],
  out repeated boolean
)
language plpgsql
immutable
set search_path from current
as $$
begin
  if cardinality(job_ids) = 1 then
    ids := job_ids;
    places := '{1}';
    repeated := false;
    return;
  end if;
  select array_agg(x.id order by x.id), array_agg(x.place::integer order by x.id),
    count(distinct x.id) < count(*)
  into ids, places, repeated
  from unnest(job_ids) with ordinality x(id, place);
end
$$;

comment on function _in_id_order is
  'Ids in ascending order, the place of each in the input, and whether an id is repeated. Private.';
