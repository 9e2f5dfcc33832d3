-- A full server (maxmemory) must not keep workers from ending what runs, which is what frees memory. It refuses a
-- script's first write if that needs memory, and only the first: this one needs none, and changes nothing.
-- Needs: partition.
redis.call('PERSIST', stats)
