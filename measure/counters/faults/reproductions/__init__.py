"""How is each fault seen?"""
