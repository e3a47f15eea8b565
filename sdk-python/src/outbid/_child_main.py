"""The `__main__` of processes that a trial starts by `multiprocessing` without forking: that of the user's script."""

from outbid import _pickle

globals().update(_pickle.main_of_trial())
