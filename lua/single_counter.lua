-- single_counter: one count per window. The first request starts a window. The functions are in window_counter.lua.
--
-- state   a string: the window's end (microseconds since the Unix epoch) and the units used, as doubles of eight bytes, most
--         significant first (struct's '>dd'). Parsing them from text would take as long as all the rest.
-- policy  limit, window
-- reply   units used, time until the window ends (a whole window if none are used)

algorithms[1] = window_counter(function(now, window) return now + window end)
