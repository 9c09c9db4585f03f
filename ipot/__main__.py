"""`python -m ipot` is `ipot`."""

import sys

from ipot.cli import main

sys.exit(main())
