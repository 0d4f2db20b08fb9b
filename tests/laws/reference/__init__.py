"""The specification of time in plain Python: every step defined over the whole input and the frontier at its end.

Nothing here shares code with the product. Where words and these definitions disagree, the definitions are right.
"""
