"""The public object, and its views: attribution, localization, long video, other libraries' interfaces."""
