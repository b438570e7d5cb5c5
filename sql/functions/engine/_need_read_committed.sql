-- _need_read_committed: refuses a transaction whose snapshot may be older than what it changes.
-- what: which call it is, for the message.
--
-- Locks:  none.
-- Raises: 25001.
create or replace function _need_read_committed(what text)
returns void
language plpgsql
stable
set search_path from current
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception '% needs a READ COMMITTED transaction', what
      using errcode = '25001',
        hint = 'An old snapshot does not show what others have changed meanwhile.';
  end if;
end
$$;

comment on function _need_read_committed is
  'Refuses (25001) a transaction above READ COMMITTED. Private.';
