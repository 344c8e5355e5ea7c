"""The live web application on what is in ISTHMUS_HOME; `isthmus studio` opens it."""

PORT = 8642
