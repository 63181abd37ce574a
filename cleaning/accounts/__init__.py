"""Why is a counter's number not the exact count?"""
