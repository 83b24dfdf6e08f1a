"""Steps, shards and gangs on Ray. The only room that imports it."""
