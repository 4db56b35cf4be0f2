"""The commands of `gemini`. Each module holds one or a few commands; main.py finds them by a table and imports only the
one that was asked for, so that `gemini run` starts fast."""
