"""Scalar functions of the codecs: plain Python, one copy for the interpreter and every compiled target."""
