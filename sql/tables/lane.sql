-- lane: the (queue, priority) pairs that hold or held jobs. A claim visits a queue's lanes in
-- descending id order, which is descending priority.
--
-- A lane's id is computed, never drawn: queue_id * 65536 + priority + 32768. So
-- id >> 16 is the queue, (id & 65535) - 32768 the priority, and the lanes of a queue are one range.
--
-- The index is not unique on purpose. With a unique one, the first producer at a new priority would
-- make every other producer there wait until its transaction ends. A lane listed twice does no
-- harm: readers take the distinct ids.
create table lane (
  id bigint not null
);

create index lane_id on lane (id);

comment on table lane is
  'Lanes, one per queue and priority in use; may list one twice. Written by whatever '
  'makes a queue or puts a job into a lane, removed by drop_queue.';
comment on column lane.id is 'queue_id * 65536 + priority + 32768.';
