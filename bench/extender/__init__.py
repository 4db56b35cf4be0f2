"""How fast is the extender? Run it as `python -m bench.extender`."""
