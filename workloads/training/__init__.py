"""How is a model built and one step of it trained?"""
