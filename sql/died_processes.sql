-- How many have ended in the month between $2 and $1 without saying so.
SELECT COUNT(*) FROM processes WHERE started < $1 AND watermark < $1 AND watermark >= $2 AND ended = 2
