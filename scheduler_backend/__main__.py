"""`python -m scheduler_backend`: the node daemon."""

import sys

from scheduler_backend.app import main

sys.exit(main())
