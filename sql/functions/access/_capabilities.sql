-- _capabilities: who may call what: the one place that says so.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  Siblings, not a ladder: a producer cannot settle, a worker cannot administer. `owner`
--         stands for what nobody is given. _now is among the observer's because views call it as
--         the reader.
create or replace function _capabilities()
returns table (name text, kind text, capability text)
language sql
immutable
set search_path from current
as $$
  select v.name, v.kind, c.capability
  from (
    values
      ('enqueue', 'function', '{producer}'::text[]),
      ('enqueue_many', 'function', '{producer}'),
      ('claim', 'function', '{worker}'),
      ('ack', 'function', '{worker}'),
      ('ack_many', 'function', '{worker}'),
      ('retry', 'function', '{worker}'),
      ('retry_many', 'function', '{worker}'),
      ('dead_letter', 'function', '{worker}'),
      ('dead_letter_many', 'function', '{worker}'),
      ('release', 'function', '{worker}'),
      ('release_many', 'function', '{worker}'),
      ('heartbeat', 'function', '{worker}'),
      ('heartbeat_many', 'function', '{worker}'),
      ('require_lease', 'function', '{worker}'),
      ('pop', 'function', '{worker}'),
      ('wait_begin', 'function', '{worker}'),
      ('wait_end', 'function', '{worker}'),
      ('next_run_at', 'function', '{worker,observer,admin}'),
      ('sweep', 'function', '{worker,admin}'),
      ('create_queue', 'function', '{admin}'),
      ('alter_queue', 'function', '{admin}'),
      ('pause_queue', 'function', '{admin}'),
      ('resume_queue', 'function', '{admin}'),
      ('purge_queue', 'function', '{admin}'),
      ('drop_queue', 'function', '{admin}'),
      ('cancel', 'function', '{admin}'),
      ('promote', 'function', '{admin}'),
      ('suspend', 'function', '{admin}'),
      ('resume', 'function', '{admin}'),
      ('reprioritize', 'function', '{admin}'),
      ('redrive', 'function', '{admin}'),
      ('redrive_queue', 'function', '{admin}'),
      ('discard_dead', 'function', '{admin}'),
      ('get_job', 'function', '{observer,admin}'),
      ('list_jobs', 'function', '{observer,admin}'),
      ('count_jobs', 'function', '{observer,admin}'),
      ('queue_stats', 'function', '{observer,admin}'),
      ('doctor', 'function', '{observer,admin}'),
      ('schema_version', 'function', '{producer,worker,observer,admin}'),
      ('grant_access', 'function', '{owner}'),
      ('revoke_access', 'function', '{owner}'),
      ('queues', 'view', '{observer,admin}'),
      ('jobs', 'view', '{observer,admin}'),
      ('dead_jobs', 'view', '{observer,admin}'),
      ('done_jobs', 'view', '{observer,admin}'),
      ('all_jobs', 'view', '{observer,admin}'),
      ('_now', 'function', '{observer,admin}')
  ) v (name, kind, capabilities)
  cross join lateral unnest(v.capabilities) c (capability)
$$;

comment on function _capabilities is
  'Which capability may use which function or view, one row each: the access matrix. Private.';
