-- _check_letter: refuses a dead letter that cannot become a job of its queue of origin again.
--
-- Locks:  none.
-- Raises: JQ001 the queue is gone; JQ007 it takes smaller payloads now; 22023 headers that are no
--         object. DETAIL names the letter.
create or replace function _check_letter(
  letter_id bigint,
  queue text,
  payload jsonb,
  headers jsonb
)
returns void
language plpgsql
stable
set search_path from current
as $$
declare
  detail text;
  hint text;
begin
  -- Only a bad one pays for the subtransaction.
  if exists (
    select
    from queue q
    where q.name = _check_letter.queue collate "C"
      and q.current
      and _can_be_job(payload, headers, 0, null, null, q.max_payload, _now()))
  then
    return;
  end if;
  begin
    perform _check_job(_find_queue(queue), payload, headers, 0, null, null);
  exception when others then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    raise exception '%', sqlerrm
      using errcode = sqlstate, hint = hint,
        detail = concat_ws(': ', format('letter %s', letter_id), nullif(detail, ''));
  end;
end
$$;

comment on function _check_letter is
  'Refuses a dead letter that cannot be replayed (JQ001, JQ007, 22023), naming it. Private.';
