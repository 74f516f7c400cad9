"""The RocksDB backend: the only room that knows rocksdict."""
