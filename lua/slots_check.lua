-- Finds out whether a node of a cluster refuses a script that uses a key of another node without declaring it. If it
-- does, one script may use keys of several slots, since none of them can go astray.
--
-- KEYS    none
-- ARGV[1] a key that another node has
-- reply   an error, as it should be

return redis.call('GET', ARGV[1])
