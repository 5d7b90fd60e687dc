import logging
import sys
import warnings

from .cli import main

# What other libraries say about themselves when they are imported.
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
sys.exit(main())
