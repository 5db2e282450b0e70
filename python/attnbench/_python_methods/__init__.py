"""Attention functions in files of Python as methods: `opening` reads the file, `calling` calls the function, `reference` what
it is compared with, and `decoding` its decoding state."""
