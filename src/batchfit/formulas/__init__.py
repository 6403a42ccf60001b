"""The formulas: plain functions on numbers, standard library only. Each stands here and nowhere else.

`batchfit.emit` turns their source into JavaScript, MathML and worked examples, so they keep to the part of
Python that it translates: arithmetic, comparisons, conditional expressions, assignments, `math`.
"""
