"""What can a row or a table be, by itself and without another file?"""
