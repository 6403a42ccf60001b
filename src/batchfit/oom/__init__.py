"""Out-of-memory messages: what their numbers mean, and what to change."""

from batchfit.oom.advice import Advice as Advice
from batchfit.oom.advice import advise as advise
from batchfit.oom.message import OutOfMemory as OutOfMemory
from batchfit.oom.reading import read_log as read_log
from batchfit.oom.reading import read_oom as read_oom

__all__ = ["Advice", "OutOfMemory", "advise", "read_log", "read_oom"]
