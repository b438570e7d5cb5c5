-- _backoff: how long to wait after the given attempt failed.
--
-- Locks:  none.
-- Raises: nothing; saturates instead of overflowing.
-- Notes:  fixed: delay. linear: delay * attempt. exponential: delay * factor ^ (attempt - 1),
--         compared through logarithms, because power() raises where the cap would have held.
--         The cap comes before the jitter: after it, every job at the cap would come back at once.
create or replace function _backoff(
  attempt integer,
  backoff text,
  factor double precision,
  delay interval,
  max_delay interval,
  jitter numrange
)
returns interval
language plpgsql
volatile
set search_path from current
as $$
declare
  base constant double precision := date_part('epoch', delay);
  cap constant double precision := date_part('epoch', max_delay);
  low constant double precision := lower(jitter)::double precision;
  high constant double precision := upper(jitter)::double precision;
  wait double precision;
begin
  if base <= 0 or cap <= 0 then
    return interval '0';
  end if;
  wait := case backoff
    when 'fixed' then base
    when 'linear' then base * attempt
    when 'exponential' then case
      when (attempt - 1) * ln(factor) >= ln(cap) - ln(base) then cap
      else base * power(factor, attempt - 1)
    end
  end;
  wait := least(wait, cap) * (low + (high - low) * random());
  return make_interval(secs => least(wait, 9007199254.74));
end
$$;

comment on function _backoff is
  'Delay after the given attempt: the curve, capped, times a random number from jitter. Private.';
