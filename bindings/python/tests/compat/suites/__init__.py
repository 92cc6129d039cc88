"""The suites that `run_suite.py` knows, one module each."""
