-- Those that served before the time $1, and have not reported all of it.
SELECT id, seen FROM processes WHERE started < $1 AND watermark < $1 AND ended = 0 ORDER BY seen
