"""May this run be published?"""
