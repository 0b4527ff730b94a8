"""Benchmarks: a module each, with the programs and tenants that they run. See README.md."""
