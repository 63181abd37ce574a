"""How does anything of ours look: numbers, columns, figures, pages?"""
