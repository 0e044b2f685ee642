# Shared by all plots: terminal, fonts, colours (Okabe-Ito palette, safe for colour-blind readers).
# Required variables: name, page_note, width, height (pixels). Optional: format = 'png' (default) or 'svg';
# to_file: the file that the picture goes to, in place of one named after the script.
# Labels and keys are 'noenhanced': no character in them is interpreted as markup.
if (!exists("format")) format = 'png'
font_name = 'DejaVu Sans'
if (format eq 'svg') {
    set terminal svg enhanced size width,height fixed background '#ffffff' font font_name.',12'
    title_font = font_name.',17'; panel_font = font_name.',13'; small_font = font_name.',12';
    tiny_font = font_name.',11'
} else {
    set terminal pngcairo enhanced size width,height background '#ffffff' font font_name.',10'
    title_font = font_name.',13'; panel_font = font_name.':Bold,10'; small_font = font_name.',9';
    tiny_font = font_name.',8'
}
# Data and picture are beside the script, whatever the working directory is.
folder_of(path) = strlen(path) == 0 || path[strlen(path):strlen(path)] eq '/' ? path \
    : folder_of(path[1:strlen(path)-1])
folder = exists("ARG0") ? folder_of(ARG0) : ''
if (!exists("to_file")) to_file = folder.name.'.'.format
set output to_file
set encoding utf8
set datafile missing '?'
data = folder.name.'.dat'
black = '#000000'; orange = '#e69f00'; sky = '#56b4e9'; green = '#009e73'
yellow = '#f0e442'; blue = '#0072b2'; vermillion = '#d55e00'; purple = '#cc79a7'
ink = '#222222'; soft = '#666666'; pale = '#e6e6e6'
# A level has the same colour in every picture: level(color_of) with the index that the document's values
# come with. 0: O0, 1: its perturbed baselines, 2 to 4: O1 to O3, then the others in turn.
array paint[12] = [0x000000, 0x999999, 0x0072b2, 0x009e73, 0xd55e00, 0xcc79a7, 0xe69f00, 0x56b4e9, \
    0x7f3c8d, 0x8c564b, 0x808000, 0x3f9aa0]
level(i) = paint[1 + (i < 12 ? i : 5 + (i - 5) % 7)]
set border 3 linecolor rgb '#888888' linewidth 1
set tics nomirror out scale 0.5 textcolor rgb '#333333' font tiny_font
set grid linecolor rgb pale linewidth 1 linetype 1
# Convert positions in pixels from the left and the top to screen coordinates.
px(x) = x / real(width)
py(y) = 1 - y / real(height)
# "2⁻¹⁴": powers in labels, which are no markup.
raised(digit) = digit eq '-' ? '⁻' : word('⁰ ¹ ² ³ ⁴ ⁵ ⁶ ⁷ ⁸ ⁹', int(digit) + 1)
exponent(text) = strlen(text) == 0 ? '' : raised(text[1:1]).exponent(text[2:*])
power(x) = x == int(x) ? '2'.exponent(sprintf('%d', x)) : sprintf('%.3g', 2**x)
