"""Backends for frameworks, each importing its framework only when it is used."""
