"""What can a row or a table be, by itself and without another file?

Checks what must hold for any row. That a row which passes is true is not claimed.
"""
