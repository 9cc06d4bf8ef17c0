"""Drop-in modules: change one import and keep the program.

`glasscache.compat.pymemcache` and `glasscache.compat.pylibmc` have those libraries' classes, methods
and exceptions, place keys where they do and read and write their values, over this package's
client.
"""
