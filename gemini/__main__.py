"""`python -m gemini` is the same as `gemini`."""

import sys

from gemini.cli.main import main

sys.exit(main())
