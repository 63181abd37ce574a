"""Which rates can one core of this processor reach by itself, and at which clock does it run now?

Rates are those of a small C program, compiled here and run beside torch: nothing is claimed of them where there is no C
compiler, and nothing is shipped compiled. The clock needs none.
"""
