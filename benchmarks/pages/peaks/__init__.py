"""What do the table of peaks and those of other packages say, as files that anybody can read?"""
