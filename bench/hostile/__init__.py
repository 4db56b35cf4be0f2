"""What do hostile users cost the others? One table of attacks (attacks.py), played against a live daemon (judge.py)."""
