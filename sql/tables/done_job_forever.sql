-- done_job_forever: the part of done_job that is never dropped.
create table done_job_forever partition of done_job for values from ('infinity') to (maxvalue);

comment on table done_job_forever is 'History that is kept forever.';
