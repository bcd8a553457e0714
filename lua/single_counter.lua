-- single_counter: one count a window, which the first request of a window starts.
--
-- state   a string: the window's end (microseconds since the Unix epoch) and the units used, as doubles of eight bytes, most
--         significant first (struct's '>dd'). Two numbers as text would take as long as all the rest.
-- policy  limit, window
-- says    units used, time until the window ends (a whole window if none are used)

algorithms[1] = window_counter(function(now, window) return now + window end)
