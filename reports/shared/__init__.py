"""How does anything of ours look: numbers, columns, figures, pages?

Presentation only: no number is computed here but for its rounding.
"""
